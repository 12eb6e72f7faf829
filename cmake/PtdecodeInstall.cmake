# Installs the libraries, the public headers, a CMake package and a pkg-config file.
include(CMakePackageConfigHelpers)

get_property(ptd_libraries GLOBAL PROPERTY PTD_LIBRARIES)
install(TARGETS ${ptd_libraries} EXPORT ptdecode ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# The public headers are those that recording/recording.h needs, plus the packet and instruction readers.
set(PTD_PUBLIC_HEADERS
  analysis/call_flow.h analysis/call_tree.h analysis/call_walk.h analysis/code_counts.h analysis/likeliest_time.h analysis/loss_times.h analysis/function_profile.h analysis/function_table.h
  recording/recording.h recording/survey.h
  decoder/batch.h decoder/flow_counts.h decoder/block_sequences.h decoder/path_counts.h decoder/flow_decoder.h decoder/insn/insn.h decoder/insn/disassembler.h decoder/insn/arm_insn.h
  decoder/arm/config.h decoder/arm/packet.h decoder/arm/packet_reader.h decoder/arm/packet_table.h decoder/arm/frames.h
  decoder/pt/config.h decoder/pt/decoder.h decoder/pt/packet.h decoder/pt/packet_reader.h decoder/pt/packet_writer.h decoder/pt/pt_clock.h
  image/timeline.h image/timeline_builder.h image/context_track.h image/edit.h image/finding.h image/symbols/symbolizer.h
  image/base/aux_segment.h image/base/result.h image/base/time_conversion.h image/base/types.h)
foreach(header ${PTD_PUBLIC_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ptdecode/${folder})
endforeach()

set(PTD_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ptdecode)
install(EXPORT ptdecode NAMESPACE ptdecode:: FILE ptdecode-targets.cmake DESTINATION ${PTD_CONFIG_DIR})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ptdecode-config.cmake.in ${PROJECT_BINARY_DIR}/ptdecode-config.cmake
  INSTALL_DESTINATION ${PTD_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ptdecode-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ptdecode-config.cmake ${PROJECT_BINARY_DIR}/ptdecode-config-version.cmake DESTINATION ${PTD_CONFIG_DIR})

# Static libraries in link order: users first.
set(PTD_PC_LIBS "-lptd_analysis -lptd_recording -lptd_arm -lptd_disassembler -lptd_perfio -lptd_image -lptd_decoder -lptd_timeline -lptd_insn -lptd_base")
configure_file(${CMAKE_CURRENT_LIST_DIR}/ptdecode.pc.in ${PROJECT_BINARY_DIR}/ptdecode.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ptdecode.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What `ptdecode demo` decodes.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/kernel DESTINATION ${CMAKE_INSTALL_DATADIR}/ptdecode)

install(FILES ${PROJECT_SOURCE_DIR}/docs/ptdecode.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/ptdecode.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ptdecode)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/_ptdecode DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_SOURCE_DIR}/cli/completions/ptdecode.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
