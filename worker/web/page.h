/* page.h - the dashboard page inside the binary: worker/web/index.html, byte for byte. */
#ifndef POSTRIDER_WEB_PAGE_H
#define POSTRIDER_WEB_PAGE_H

#include <stddef.h>

extern const unsigned char web_index[]; /* UTF-8; a zero byte follows that len does not count */
extern const size_t web_index_len;

#endif
