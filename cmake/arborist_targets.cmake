# arborist_library(room SOURCES a.cc ... LINK other ...): one room, one target. Every include starts at the repository root.
function(arborist_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

# arborist_test(name [TIER quick|full] SOURCES ... LINK ...): a GoogleTest binary, registered with ctest as one test
# with the tier as its label (default quick). Data paths: tests see ARBORIST_SOURCE_DIR in their environment.
function(arborist_test name)
  cmake_parse_arguments(ARG "" "TIER;TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_TIER)
    set(ARG_TIER quick)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_TIER} TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "ARBORIST_SOURCE_DIR=${PROJECT_SOURCE_DIR};ARBORIST_BINARY_DIR=${CMAKE_BINARY_DIR}")
endfunction()

# arborist_bench(name SOURCES ... LINK ...): prints figure, floor and ratio; never part of ctest.
function(arborist_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# arborist_fuzz(x_fuzz SOURCES ... LINK ...): LLVMFuzzerTestOneInput over inputs from outside. In the preset `fuzz` a libFuzzer
# program; elsewhere a quick test that runs it over tests/fuzz/seeds/x, so that whatever crashed once is tried in every build.
function(arborist_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  string(REGEX REPLACE "_fuzz$" "" seeds ${name})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  if(ARBORIST_SANITIZER STREQUAL "fuzz")
    target_link_options(${name} PRIVATE -fsanitize=fuzzer -Wl,--as-needed)
  else()
    target_sources(${name} PRIVATE replay_seeds.cc)
    add_test(NAME ${name} COMMAND ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/seeds/${seeds})
    set_tests_properties(${name} PROPERTIES LABELS quick TIMEOUT 300)
  endif()
  set_property(GLOBAL APPEND PROPERTY ARBORIST_FUZZ_TARGETS ${name})
endfunction()

# arborist_isa_sources(target a_lanes.cc ...): compiles each file once for every instruction set of kernels/simd, in the
# namespace ARBORIST_ISA = portable, avx2 and avx512. ForActiveIsa() picks one at run time.
function(arborist_isa_sources target)
  set(flags_portable "")
  set(flags_avx2 -mavx2 -mfma -mf16c)
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512
    -Wno-uninitialized -Wno-maybe-uninitialized)  # g++ 12's own AVX-512 header triggers them
  foreach(isa portable avx2 avx512)
    set(objects ${target}_${isa})
    add_library(${objects} OBJECT ${ARGN})
    target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/kernels/simd/${isa})
    target_compile_definitions(${objects} PRIVATE ARBORIST_ISA=${isa})
    target_compile_options(${objects} PRIVATE -O3 -fno-trapping-math ${flags_${isa}})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
