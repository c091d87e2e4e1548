#include "coordinator/run.h"

int main(int argc, char** argv) { return arborist::coordinator::RunProcess(argc, argv); }
