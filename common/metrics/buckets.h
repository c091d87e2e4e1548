#pragma once

#include <vector>

namespace arborist {

// Bounds of histograms, shared so that graphs of several processes can be laid over one another.

// Of rounds, steps and calls inside a rack: 20 us to 5 s.
inline const std::vector<double> kShortSeconds = {.00002, .00005, .0001, .0002, .0005, .001, .002,
                                                  .005,   .01,    .05,   .25,   1,     5};
// Between tokens: speculation lives below 10 ms.
inline const std::vector<double> kTokenSeconds = {.0005, .001, .002, .004, .006, .008, .01,
                                                  .015,  .02,  .03,  .05,  .1,   .25,  1};
// What a client waits for.
inline const std::vector<double> kRequestSeconds = {.005, .01, .025, .05, .1, .25, .5,
                                                    1,    2.5, 5,    10,  30, 60,  120};
inline const std::vector<double> kPowersOfTwo = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
// Depths and accepted lengths.
inline const std::vector<double> kSmallCounts = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
inline const std::vector<double> kRatios = {0, .1, .2, .3, .4, .5, .6, .7, .8, .9, 1};

}  // namespace arborist
