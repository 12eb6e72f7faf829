# ptd_library(name SOURCES ... DEPS ... PRIVATE_DEPS ...): the static library of a module. DEPS are modules, PRIVATE_DEPS third-party libraries.
include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

add_library(ptd_warnings INTERFACE)
target_compile_options(ptd_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wconversion -Wno-sign-conversion)
# Several files in one: names that only one of them knows hide each other's, and types of a .cc seem to be of a header.
if(CMAKE_UNITY_BUILD)
  target_compile_options(ptd_warnings INTERFACE -Wno-shadow -Wno-subobject-linkage -Wno-maybe-uninitialized)
endif()

function(ptd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS} $<BUILD_INTERFACE:ptd_warnings>)
endfunction()
