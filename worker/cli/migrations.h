/* migrations.h - the SQL migrations inside the binary.
 *
 * Made at build time from sql/NNN_topic.sql, in ascending order of version, so that a
 * binary can always bring a database to the schema it was written for. */
#ifndef POSTRIDER_CLI_MIGRATIONS_H
#define POSTRIDER_CLI_MIGRATIONS_H

#include <stddef.h>

struct migration {
    int version;              /* NNN */
    const char *name;         /* file name without .sql: "001_messages" */
    const unsigned char *sql; /* the file's bytes, then a zero byte that len does not count */
    size_t len;
};

extern const struct migration migrations[];
extern const size_t migrations_count;

#endif
