#include "common/runner/runner.h"

int main(void)
{
    return runner_main();
}
