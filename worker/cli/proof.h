/* proof.h - what a vendor can prove, in sentences: the same for `check` and `provider list`.
 *
 * Pure: from the capabilities that the opened plugin declared. */
#ifndef POSTRIDER_CLI_PROOF_H
#define POSTRIDER_CLI_PROOF_H

#include <jansson.h>

struct config;
struct config_provider;
struct plugin;
struct provider_caps;

/* Where receipts stand for one provider of a configuration. */
struct proof_receipts {
    const char *url;     /* where they come, with TOKEN for the token; NULL: not set up, ... */
    const char *missing; /* ... because these settings lack: "receipt_token and public_url" */
};

/* A JSON array of sentences without capital and full stop; NULL when out of memory. */
json_t *proof_lines(const struct provider_caps *caps, const struct proof_receipts *receipts);

/* One provider as `check --json` and `provider list --json` show it: name, plugin, capabilities,
 * "proves" (the sentences), "receipts_url". NULL when out of memory. */
json_t *proof_doc(const struct config *config, const struct config_provider *p,
                  const struct plugin *plugin);

/* "public_url" and the like, whatever receipts of this provider lack; NULL: nothing. Static. */
const char *proof_receipts_missing(const struct config *config, const struct config_provider *p);

#endif
