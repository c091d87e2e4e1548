#include "coordinator/cli/client.h"

int main(int argc, char** argv) { return arborist::coordinator::RunClient(argc, argv); }
