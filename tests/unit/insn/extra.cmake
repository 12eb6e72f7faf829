# The reference disassemblers of the differential tests.
find_library(PTD_TEST_ZYDIS Zydis REQUIRED)
find_library(PTD_TEST_IPT ipt REQUIRED)
find_library(PTD_TEST_CAPSTONE capstone REQUIRED)
target_link_libraries(unit_insn PRIVATE ${PTD_TEST_ZYDIS} ${PTD_TEST_IPT} ${PTD_TEST_CAPSTONE})
