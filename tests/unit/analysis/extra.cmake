# The module is compiled again, with its tests, so that every arithmetic operation is checked: thread numbers, times and counts come from files.
file(GLOB_RECURSE analysis_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/analysis/*.cc)
target_sources(unit_analysis PRIVATE ${analysis_sources})
target_compile_options(unit_analysis PRIVATE -fsanitize=undefined -fno-sanitize=null,alignment,object-size,vptr -fno-sanitize-recover=all)
target_link_options(unit_analysis PRIVATE -fsanitize=undefined)
target_link_libraries(unit_analysis PRIVATE Threads::Threads)
