#include "drafter/run.h"

int main(int argc, char** argv) { return arborist::drafter::RunProcess(argc, argv); }
