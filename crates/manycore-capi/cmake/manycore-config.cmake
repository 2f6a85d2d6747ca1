# find_package(manycore CONFIG): the targets manycore::manycore, shared, and manycore::manycore_static.
get_filename_component(_manycore_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(_manycore_prefix "${_manycore_lib}/.." ABSOLUTE)
find_package(Threads REQUIRED)

foreach(_manycore_target manycore manycore_static)
	if(TARGET manycore::${_manycore_target})
		continue()
	endif()
	if(_manycore_target STREQUAL "manycore")
		add_library(manycore::manycore SHARED IMPORTED)
		set_target_properties(manycore::manycore PROPERTIES
			IMPORTED_LOCATION "${_manycore_lib}/libmanycore.so"
			IMPORTED_SONAME "libmanycore.so.0")
	else()
		add_library(manycore::manycore_static STATIC IMPORTED)
		set_target_properties(manycore::manycore_static PROPERTIES
			IMPORTED_LOCATION "${_manycore_lib}/libmanycore.a"
			INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;Threads::Threads;m;dl")
	endif()
	set_target_properties(manycore::${_manycore_target} PROPERTIES
		INTERFACE_INCLUDE_DIRECTORIES "${_manycore_prefix}/include")
endforeach()
