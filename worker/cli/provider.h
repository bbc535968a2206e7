/* provider.h - the verbs of `postrider provider`. */
#ifndef POSTRIDER_CLI_PROVIDER_H
#define POSTRIDER_CLI_PROVIDER_H

int provider_list(int argc, char **argv);
int provider_test(int argc, char **argv);

#endif
