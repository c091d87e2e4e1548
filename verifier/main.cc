#include "verifier/run.h"

int main(int argc, char** argv) { return arborist::verifier::RunProcess(argc, argv); }
