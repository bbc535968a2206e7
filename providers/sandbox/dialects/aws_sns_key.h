/* aws_sns_key.h - what the sandbox's notifications are signed with. PEM texts. */
#ifndef POSTRIDER_SANDBOX_AWS_SNS_KEY_H
#define POSTRIDER_SANDBOX_AWS_SNS_KEY_H

extern const char aws_sns_key[];  /* RSA, private */
extern const char aws_sns_cert[]; /* for those who verify: GET /SimpleNotificationService.pem */

#endif
