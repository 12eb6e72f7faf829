# What the plugins write at boot and how they read registers, without an emulator: the test has QEMU's functions.
target_sources(unit_emulate PRIVATE ${PROJECT_SOURCE_DIR}/capture/emulate/plugin/code_log.cc ${PROJECT_SOURCE_DIR}/capture/emulate/plugin/system_glue.cc)
set_target_properties(unit_emulate PROPERTIES ENABLE_EXPORTS ON)
