/* The configuration's way from a file into memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "worker/core/err.h"
#include "worker/engine/config.h"

enum { FILE_MAX = 4 * 1024 * 1024 };

/* The whole file in memory; -errno. */
static int read_file(const char *path, char **ret_text, size_t *ret_len)
{
    FILE *f = fopen(path, "re");
    struct stat st;
    char *text = NULL;
    size_t len = 0;
    int r = 0;

    if (!f)
        return -errno;
    if (fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode))
        r = -EISDIR;
    else if (!(text = malloc(FILE_MAX + 1)))
        r = -ENOMEM;
    else if ((len = fread(text, 1, FILE_MAX + 1, f)) > FILE_MAX)
        r = -EFBIG;
    else if (ferror(f))
        r = -EIO;
    fclose(f);
    if (r < 0) {
        free(text);
        return r;
    }
    *ret_text = text;
    *ret_len = len;
    return 0;
}

int config_load(const char *path, struct config **ret_config, struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    int r = read_file(path, &text, &len);

    if (r < 0 || !text) {
        err_set(err, r, "%s: %s", path, strerror(-r));
        return r;
    }
    r = config_parse(text, len, path, ret_config, err);
    explicit_bzero(text, len);
    free(text);
    return r;
}
