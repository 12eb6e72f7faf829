# The same tests and their module, with every arithmetic operation checked: thread numbers, times and counts come from files.
file(GLOB_RECURSE analysis_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/analysis/*.cc)
add_executable(analysis_ubsan ${sources} ${analysis_sources})
target_compile_options(analysis_ubsan PRIVATE -fsanitize=undefined -fno-sanitize=null,alignment,object-size,vptr -fno-sanitize-recover=all)
target_link_options(analysis_ubsan PRIVATE -fsanitize=undefined)
target_link_libraries(analysis_ubsan PRIVATE ptd_recording ptd_warnings Threads::Threads GTest::gtest_main GTest::gmock)
target_compile_definitions(analysis_ubsan PRIVATE PTD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_test(NAME analysis_ubsan COMMAND analysis_ubsan)
