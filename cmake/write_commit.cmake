# cmake -DSOURCE=DIR -DOUT=FILE -P: writes the commit that the tree at DIR is at, "-dirty" behind it where tracked files differ,
# "unknown" without git or outside a checkout.
set(commit unknown)
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${git} -C ${SOURCE} diff --quiet HEAD -- RESULT_VARIABLE differs OUTPUT_QUIET ERROR_QUIET)
    if(differs)
      string(APPEND commit -dirty)
    endif()
  endif()
endif()
file(WRITE ${OUT} "${commit}\n")
