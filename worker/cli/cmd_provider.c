/* postrider provider: what the vendors can prove, and one real message through one of them. */
#include <stddef.h>

#include "worker/cli/cli.h"
#include "worker/cli/provider.h"
#include "worker/cli/verbs.h"

int cmd_provider(int argc, char **argv)
{
    static const struct verb verbs[] = {
        {"list", provider_list, "what each provider can prove, and whether its door is open"},
        {"test", provider_test, "sends one real message through a provider"},
        {"hold", NULL, "stops sending through a provider"},
        {"resume", NULL, "sends through it again"},
        {NULL, NULL, NULL},
    };

    return verbs_run(verbs, "The vendors messages are handed to.", argc, argv);
}
