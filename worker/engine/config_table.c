/* Every setting, in the order `check` and the README list them. */
#include <stddef.h>

#include "worker/engine/config.h"

#define TOP(field)  offsetof(struct config, field)
#define PROV(field) offsetof(struct config_provider, field)

/* clang-format off */
const struct config_setting config_settings[] = {
    { .name = "database", .type = CONFIG_SECRET, .offset = TOP(database),
      .help = "libpq connection string; --dsn and POSTRIDER_DSN come first" },
    { .name = "listen", .type = CONFIG_TEXT, .offset = TOP(listen),
      .help = "HOST:PORT for metrics, health and the dashboard; null: none" },
    { .name = "in_flight", .type = CONFIG_INT, .def = 1500, .min = 1, .max = 10000,
      .reloadable = true, .offset = TOP(in_flight),
      .help = "most calls in the air in one worker" },
    { .name = "lease_s", .type = CONFIG_INT, .def = 60, .min = 5, .max = 3600,
      .reloadable = true, .offset = TOP(lease_s),
      .help = "how long a claimed message belongs to its worker" },
    { .name = "poll_ms", .type = CONFIG_INT, .def = 250, .min = 20, .max = 10000,
      .reloadable = true, .offset = TOP(poll_ms),
      .help = "longest wait before an idle worker looks for due messages" },
    { .name = "settle_ms", .type = CONFIG_INT, .def = 10, .min = 1, .max = 1000,
      .reloadable = true, .offset = TOP(settle_ms),
      .help = "how long outcomes gather before they are stored together" },
    { .name = "settle_allowance_ms", .type = CONFIG_INT, .def = 3000, .min = 100, .max = 600000,
      .reloadable = true, .offset = TOP(settle_allowance_ms),
      .help = "part of the lease kept for storing the outcome, database stalls included" },
    { .name = "drain_s", .type = CONFIG_INT, .def = 30, .min = 0, .max = 3600,
      .reloadable = true, .offset = TOP(drain_s),
      .help = "how long SIGTERM waits for calls in the air" },
    { .name = "admin_token", .type = CONFIG_SECRET, .reloadable = true, .offset = TOP(admin_token),
      .help = "what the HTTP side asks for before it changes anything" },
    { .name = "public_url", .type = CONFIG_TEXT, .reloadable = true, .offset = TOP(public_url),
      .help = "http(s) address under which vendors reach the workers, for receipts" },
    { .name = "log_level", .type = CONFIG_CHOICE, .def_text = "info",
      .choices = "error|warn|info|debug", .reloadable = true, .offset = TOP(log_level),
      .help = "least important line that is still logged" },
    { .name = "providers", .type = CONFIG_OBJECT, .required = true,
      .help = "the vendors by name, at least one; file order is the default route" },
    { .name = NULL },
};

const struct config_setting config_provider_settings[] = {
    { .name = "plugin", .type = CONFIG_TEXT, .required = true, .offset = PROV(plugin),
      .help = "name of the plugin, or a path to its .so" },
    { .name = "in_flight", .type = CONFIG_INT, .def = 1500, .min = 1, .max = 10000,
      .reloadable = true, .offset = PROV(in_flight),
      .help = "most calls in the air to this vendor from one worker" },
    { .name = "rate_per_s", .type = CONFIG_INT, .def = 0, .min = 0, .max = 100000,
      .reloadable = true, .offset = PROV(rate_per_s),
      .help = "most units a second; 0: no limit (not enforced in this version)" },
    { .name = "rate_unit", .type = CONFIG_CHOICE, .def_text = "message",
      .choices = "message|segment", .reloadable = true, .offset = PROV(rate_unit),
      .help = "what rate_per_s counts" },
    { .name = "connect_timeout_ms", .type = CONFIG_INT, .def = 1000, .min = 10, .max = 60000,
      .reloadable = true, .offset = PROV(connect_timeout_ms),
      .help = "name look-up, connect and TLS" },
    { .name = "timeout_ms", .type = CONFIG_INT, .def = 2000, .min = 10, .max = 600000,
      .reloadable = true, .offset = PROV(timeout_ms),
      .help = "the whole call, connect included; then its outcome is unknown" },
    { .name = "idle_ms", .type = CONFIG_INT, .def = 50000, .min = 1000, .max = 600000,
      .reloadable = true, .offset = PROV(idle_ms),
      .help = "a connection idle longer is not used again; keep below the vendor's limit" },
    { .name = "receipt_token", .type = CONFIG_SECRET, .reloadable = true,
      .offset = PROV(receipt_token),
      .help = "16 to 128 of A-Z a-z 0-9 _ -: receipts come to public_url/receipts/NAME/TOKEN" },
    { .name = "ca_file", .type = CONFIG_TEXT, .reloadable = true, .offset = PROV(ca_file),
      .help = "certificates to trust instead of the system's" },
    { .name = "settings", .type = CONFIG_OBJECT, .reloadable = true,
      .help = "what the plugin asks for, see its README" },
    { .name = NULL },
};
/* clang-format on */
