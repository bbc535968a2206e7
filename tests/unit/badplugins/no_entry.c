/* Not a plugin at all. */
int something_else(void);
int something_else(void)
{
    return 1;
}
