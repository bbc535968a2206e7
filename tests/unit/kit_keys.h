/* Keys that guard nothing, and what OpenSSL's command line signed with them (`openssl genrsa`,
 * `openssl req -x509`, `openssl dgst -sign`). */
#ifndef POSTRIDER_TESTS_KIT_KEYS_H
#define POSTRIDER_TESTS_KIT_KEYS_H

static const char rsa_private[] =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQDHpZqIiuWuUuba\n"
    "c6eRCnb38VgzQ5TFXbZxGgG9BmB3GrtgqNB6Qkyjik27/XHtDvC0NIeIpl3wSSDj\n"
    "8Asw7HGnAL4vtgPZnEdX0zzjfBzVI2DoMHjhsGKqB7kMBe0ezr6Mqo7qvkT8pR31\n"
    "K9pvsPEdF5gQi2+/3qlNqSskNQkUbNdDY8v2ykNsINnw54OKkBYi/uc8FS+qFzsg\n"
    "BxvOPZnmKwWlYiNz0GVZSHVU3om83cnbhr2cUyvoD6MA14xmjB/rijvFBHCiRVqw\n"
    "Jdfft4cgH62ArXIGXVcFk+Dop0PUEwBio6IcJO1xwTaJY6Lgq7xxFIXE8yvKEvsA\n"
    "Iazq8i5TAgMBAAECggEAWX5M/s8QdSu5SwxT/WrM+IjpqhUtv6kp6ponVFXi8RD9\n"
    "FK+nwF4u35JUFSRfqM2tLYJsjN9Sta76POLyCUy8B4oINvfm0unAe0h3/1s3y30P\n"
    "6BUuYrDAEYrjstWHPOudNA4SgXyoDP5xJuExCictdgaJBkWS4tXLW8Is0g6qEsqJ\n"
    "yg63nBeH+LleE2C9J3juz2Z7pM5XSPCiydqABVUDozWKfyaITcdSVMYvb3MMxKBc\n"
    "/pOQN+o4k04NsOShDs+3dAyxziyis40LyLRb0ONBcdGaKPDFa+ruxCZTYmAZBWM2\n"
    "S+EQbJFd3zd6VV6C8hBuC3L6dlZBVFbbwpS1BcqBKQKBgQD38lWwVPfFCQchYoZo\n"
    "+CfNYKFYoqB7kzHv5aZ9q7r8o+n9tCTQT3zSQh5++roTRItfC7TTztU7W1SFZCYC\n"
    "3BPC50KKPNZaYF8+RtLS+akm7ZBcPZzZ2F8zKjVlSZpJumyxfbussJU3IZctFcYG\n"
    "J1iAJ47dJVy0TyAH6lr2IwbaWQKBgQDOIailybbi/5zGWTl/aQTL8G4l/OXF7eD8\n"
    "sRwNL2BYnZBPgo+T+y+Ubn87mjELSwmnK7/Zw7X54MTiX623bztQZXRioXyHSXyb\n"
    "F1p3F1NJ60uLFZhQcFJfsj8GRlc9Z3F1qISqv1hs/dWOoIIK0EHsg7lF/DMq4c4M\n"
    "cZsy75KgiwKBgBwOmBO0CbWKJ/xnIb6PFjHvVVKqVG6nYWc8HXLrE+Wyxq+myuOn\n"
    "mwBP6xODW7sCbqL6uCOfrBFjbFUL2CFKthHACY+LAtaHQT/S09h71+BH0aYecrlT\n"
    "+rHXfONRSNw+9D3BdJM+CCSM8IZxiE759NHLqCbuK2db7Mv4gQKJRCVBAoGAdsWK\n"
    "KUzbJlzmdpt+t91JOEFnFlhsBOoWE0Pxx98egrD3L/koxbmcJsisYylrTPiFrV9W\n"
    "AiH0vvA2QcGjlOhwothygUpPOJytQafpJmm4QgVj19Yvl1nA/Qb1raXmKqlqBMN+\n"
    "/euXBeYUoUP26kgpVCBqJts0mGbXlO/43xaPxBUCgYBID8NruDeX5KULmDe+yUFx\n"
    "o7r2ixLiYh6S/8nRrxGbstud8NhvzRFZJd74W94VBkVMlWx/69CL8GRBY8ulZsIO\n"
    "CxRUKY73BkcJ+am2bt2yqvkJCHLK7vdS/VEmpvPQEo0Apihx+4NAFMMW9FWvGjHq\n"
    "iAEdUrw2uD79yz+BCS9pXA==\n"
    "-----END PRIVATE KEY-----\n";

/* The same key, locked with a passphrase. */
static const char rsa_locked[] =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
    "MIIFLTBXBgkqhkiG9w0BBQ0wSjApBgkqhkiG9w0BBQwwHAQIM8Jf6jCNAVQCAggA\n"
    "MAwGCCqGSIb3DQIJBQAwHQYJYIZIAWUDBAECBBB/SrTXt9Ix8n+8ZI0hPy+mBIIE\n"
    "0BD7PSydbylOV1y0U/9dun2E6Xh07DEHyj9lxeyHV8aPTF1NCaEN3O39vjd3KkvK\n"
    "tOl/03L9Qw3RGsPYucWlna1DBXLtziVokaNjsW02VP8wA6poof/y1PGn5+B2FR8p\n"
    "MbwthdJAoqJ6iTlxACb5PsHbPGamuWxGsN7oEqN+V90zMVqQajRH7ebsmNLIA2El\n"
    "tVuEwPYrraM4G3tmlBIjBPrG52cGRykwmQJMRpxtwffB26irUj7Nsz9itP9VTQyn\n"
    "GpHEQuJ+2WByQCmB84jp7oN8l/AzzeyWuT8PUnDn8eJf33zO6HJm1jfNoktai5zn\n"
    "OPFlcFfqG5gVcu2FDtrnzZsfywlKHxCwNmKzdrHwE2j+C3MN7BCfvPIkmao+oNHY\n"
    "2/IW7XHK1JT+UL24ixEbJk5QoFwkYQNfDu0sYD8+kta3IWvbg+9senMAKaMsoLkS\n"
    "OzxqAAHVygcKb70aaHdrz3oEvZJfMbr6F8+nvPqLBGnhzttO7Qm6N1LjzAlz/hqN\n"
    "l638hxLdyd5IHV19wkOM77x7WLXNkNhzpQiohEmHVijVic0QuFRtbTsACQ/cqzRV\n"
    "4XRWcJOlfb8CTOxadqS326Fa+a1oAlJxdcZwkqpxKyGeb5lMruWiRMoRoGfdCWFw\n"
    "R9U5/yt7jrItsmiEqS3mChNWr9pSPr6mly059gsNrGjRUKEjEd2xQ63rDwm3TmMl\n"
    "vHGwaB/lnsek7deGTwOwr8tuLgKa8+gpHofKHm256ZddhYf4T+nEGEiv/O9C/Bdv\n"
    "9ad9Iad+Wi++/uIAGX+OL+KTdjJ3kcwzuVixUHkAh4ECZJuF6HE9KsCE8zXDwIa3\n"
    "9MsqG1XqJgB5gxuqzOpxo4XE+2JFF976qsjGEQ7EOdVp/nxst6bNHSduCjRZZ1Ey\n"
    "bjfBdHrLtJ3m6vqDb48uxjpN5cm+a3Ilvt/7+L56zOuZo5+BB3SSVBuJeS0iAqV+\n"
    "suu8m1DK0VQqDdG0FDQNCTv+u+PQrOoL6pZ7zEJ0IgiNUYWO3rfFkBYn1KBjeyou\n"
    "ArK5NoB8VYij56JGnxaJ9S0UjuSe+lmy60eCPmLmoQYbjHOeJNvk0N0HiMIN5376\n"
    "wYkUiArqMj/Pd4JOhZol0123LF8ddI+DrAPgLIgQlihzuRzotMkJB1GbG2mNt4+J\n"
    "Acll2Nvm8diz5BJY13oxisV1GYVsTGulteG4FhBTPpdZEEOvFowd/2wnNETRxXB9\n"
    "BUOCjcFUuVhZKQMmT4VFhajDQYLj8Wp4VPfKLZRsDTzxDPXVZud4UOXwN9foyaKV\n"
    "3p4TE/4ycSoDkap2PdUJLUVPmT31AfltSSKZyQuy6YLnwAH4/Y7EeyInG9rZYQ0C\n"
    "+HzSPhINFv3TA7Ja03jjZWljA0J/4IEMV4W37OJoVyxObVT3tVeVg8g3rNt7QUAm\n"
    "PgIWNTaVBWRqLGktdtRN1iteXdGvmtYOODv/aQrAUhkdCHKbdbbgb1dN/48TrKek\n"
    "IEyMZ44cKvYCD+a+pOu4ATIkshtfK2Ydpq7t+svvz1rhQTrQ18dEEMplO0rYZU9w\n"
    "Brs6+sBzguFOQZW794zGIfTxp/dH6RyednAeRts+jKu8KXYDqe+vra2gl4aFkrWg\n"
    "/EsNLKf4e2sPBGypHkrLtorua658s6EHfsjfDuEsaRC5\n"
    "-----END ENCRYPTED PRIVATE KEY-----\n";

static const char rsa_public[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAx6WaiIrlrlLm2nOnkQp2\n"
    "9/FYM0OUxV22cRoBvQZgdxq7YKjQekJMo4pNu/1x7Q7wtDSHiKZd8Ekg4/ALMOxx\n"
    "pwC+L7YD2ZxHV9M843wc1SNg6DB44bBiqge5DAXtHs6+jKqO6r5E/KUd9Svab7Dx\n"
    "HReYEItvv96pTakrJDUJFGzXQ2PL9spDbCDZ8OeDipAWIv7nPBUvqhc7IAcbzj2Z\n"
    "5isFpWIjc9BlWUh1VN6JvN3J24a9nFMr6A+jANeMZowf64o7xQRwokVasCXX37eH\n"
    "IB+tgK1yBl1XBZPg6KdD1BMAYqOiHCTtccE2iWOi4Ku8cRSFxPMryhL7ACGs6vIu\n"
    "UwIDAQAB\n"
    "-----END PUBLIC KEY-----\n";

static const char rsa_certificate[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIDETCCAfmgAwIBAgIURwsSza9XrbJKADRs89A0f3dR4H4wDQYJKoZIhvcNAQEL\n"
    "BQAwFzEVMBMGA1UEAwwMdGVzdC5leGFtcGxlMCAXDTI2MTIwMTA0MTQ0NloYDzIx\n"
    "MjYxMTA3MDQxNDQ2WjAXMRUwEwYDVQQDDAx0ZXN0LmV4YW1wbGUwggEiMA0GCSqG\n"
    "SIb3DQEBAQUAA4IBDwAwggEKAoIBAQDHpZqIiuWuUubac6eRCnb38VgzQ5TFXbZx\n"
    "GgG9BmB3GrtgqNB6Qkyjik27/XHtDvC0NIeIpl3wSSDj8Asw7HGnAL4vtgPZnEdX\n"
    "0zzjfBzVI2DoMHjhsGKqB7kMBe0ezr6Mqo7qvkT8pR31K9pvsPEdF5gQi2+/3qlN\n"
    "qSskNQkUbNdDY8v2ykNsINnw54OKkBYi/uc8FS+qFzsgBxvOPZnmKwWlYiNz0GVZ\n"
    "SHVU3om83cnbhr2cUyvoD6MA14xmjB/rijvFBHCiRVqwJdfft4cgH62ArXIGXVcF\n"
    "k+Dop0PUEwBio6IcJO1xwTaJY6Lgq7xxFIXE8yvKEvsAIazq8i5TAgMBAAGjUzBR\n"
    "MB0GA1UdDgQWBBTYhy2YxQ3MD9KZX2GGgQxuhXQ4yDAfBgNVHSMEGDAWgBTYhy2Y\n"
    "xQ3MD9KZX2GGgQxuhXQ4yDAPBgNVHRMBAf8EBTADAQH/MA0GCSqGSIb3DQEBCwUA\n"
    "A4IBAQC2bnCH5DQ9w6TWMzoKemnCCCxevdr2CD/asTXOsR0H5i6hevnU4o4x6hje\n"
    "VTdlB/Xn9YVhMF5BBQYePSTF9DFRYZcBa52mII1xjg1NyWpK5+0xg8rrSpEzOXl+\n"
    "TFRKDcWn9N5C4L/iLj4MtGjuGAS8ZCmQbAb23SNX/i/cTW+7EzsTkYXXou6kx9hE\n"
    "ew8V2pP5Y3OWr65MMLXc8Bvz06sUEXvQpDY3Ob7+5PL+X4CK9P6lkVrmRWMPnKny\n"
    "qFJSMlUHyCvan2/IWuEX7J8ILKv0BTBewxeBcfQuH8Wc2b1Fcqv8wAe7Gce52OXw\n"
    "VM0pM5pjqss3kuC8fW9laMRm9AjJ\n"
    "-----END CERTIFICATE-----\n";

static const char ec_private[] =
    "-----BEGIN EC PRIVATE KEY-----\n"
    "MHcCAQEEIMxr6uhKnfdOdK1eUgnidXXmZuW9oqtWp8CojTe9kZCYoAoGCCqGSM49\n"
    "AwEHoUQDQgAE2Y9YStPntZ9lsEYN6yfHNx7xMxu2yPFaQ/4Zv0jyoDv36BJiMzMs\n"
    "vWnDekduBRSBuJmgXRS5T4vidLFtRc8tlw==\n"
    "-----END EC PRIVATE KEY-----\n";

/* Of the bytes "Message\nhello\n". */
static const char rsa_sha256_base64[] =
    "Ew6vJFsUbfKYBJWVHGPgFSHfNOAt9WYM43IQzMrE2R9VYDqG7XEUDgINv6nBV1y9Dt/uU7tNZINh+NlV"
    "R29azQL3tqW/B0tDFa1RUMxH/VBDPtQ9sxzB5Pn/0QkK7W90FwgWOQp81DMZLtViCNggCtH1wSwRjos7"
    "osnBivXJg5Cl8LIWTQebjbA7jMPljTBmfH35EFAnV8AYWw1K/Tvd+RdcmeNhg5cQ5lPyaFWB+ekbB1HQ"
    "nWpY4X26YPYe48q3nsAa7yPkKQilOIuOGGRVRm1GdeTYlo8PYyJDwKa1WNAA0kQEKTaaGRBgnfe+tUwO"
    "M4cPW0Vf3kArl0CWqHmPAw==";
static const char rsa_sha1_base64[] =
    "Z9cTkKlW3TK7bgo2gVPNvoG5jt2hsjLMwEfwVGRBGrT6iPbKVRGWBDuTa5eLfPn6LEJ+8Oi62Tk4SzkE"
    "aZ32l2a8nzSAPKPrT9oMDriya04vpYqJOMlNbnDyboGK0FSOvrgtn+lbWCIFoy0qmaKACtze2ZETFJmh"
    "uWi95AnEdVFWOT49lmf5BTEoVWDEpBO6mXdkPUlKhbZQ57m4qo4/ZI1lBWpBMze9uNO8LCRJvaBzoNxo"
    "UTbERzLQzbKZoYjq997/EoP0+ENyXZPDYKbkqtIjJdiVgJ1HpgEe+uZqFQAGyjRb259o93h1Z2/nHklf"
    "+kP+XpY9BKKAduqZ9UxOqQ==";

/* {"alg":"RS256","typ":"JWT"} . {"application_id":"abc","iat":1700000000} */
static const char rs256_token[] =
    "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJhcHBsaWNhdGlvbl9pZCI6ImFiYyIsImlhdCI6MTc"
    "wMDAwMDAwMH0.Y9YHNOems1UAyQmBam0MkVnE7FxJV4XB3gtSyPHNJektAbmChOPK3nXFuIOnO68e_PO"
    "Z8kix5PsmNEnTwHpOuZR5v9n2u6UEh7hihUcpJvtzohE79sDmzsD9P9u2FWKzeA_OkmSHUHM6oNWJBoZ"
    "k6Rp9vnVGtKs4_YSizFO6D7jlMOuApU43JfcEzsyhS2KukUa31HfuALakNpe6aBd5-TzL8l8rp9RrVwp"
    "omsuwz-ASS-AEP-R4wnPyfIAY2BAp7M7UDCZCVuJjyG6uxRpWDhmkzBRAOfZ4ohvWEtLQSL2S8lBVEhU"
    "_CmygZ24AS4dsKp9CcQG_xBtBSJZy-aUEMQ";

#endif
