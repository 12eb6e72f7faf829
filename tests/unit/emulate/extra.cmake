# What the plugin writes at boot, without an emulator.
target_sources(unit_emulate PRIVATE ${PROJECT_SOURCE_DIR}/capture/emulate/plugin/code_log.cc)
