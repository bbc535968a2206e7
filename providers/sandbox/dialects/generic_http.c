#include "providers/sandbox/dialect.h"

/* A stub: nothing built yet. */
const struct sb_dialect sb_dialect_http = {.name = "http"};
