# The packet tests read gzipped listings and use libipt, which is used in tests only.
# The emulated trace unit is tested without an emulator.
find_package(ZLIB REQUIRED)
find_library(IPT_LIBRARY ipt REQUIRED)
find_package(fmt REQUIRED)
target_link_libraries(unit_pt PRIVATE ptd_trace_unit ZLIB::ZLIB fmt::fmt ${IPT_LIBRARY})
