# SPDX-License-Identifier: Apache-2.0
#
# Tutti::sodium and Tutti::jansson: libraries that libtutti needs, for this build and for programs that link libtutti.a.
foreach(tutti_library sodium jansson)
    string(TOUPPER ${tutti_library} tutti_name)
    find_path(TUTTI_${tutti_name}_INCLUDE ${tutti_library}.h)
    find_library(TUTTI_${tutti_name}_LIBRARY ${tutti_library})
    if(TUTTI_${tutti_name}_INCLUDE AND TUTTI_${tutti_name}_LIBRARY AND NOT TARGET Tutti::${tutti_library})
        add_library(Tutti::${tutti_library} UNKNOWN IMPORTED)
        set_target_properties(Tutti::${tutti_library} PROPERTIES
            IMPORTED_LOCATION ${TUTTI_${tutti_name}_LIBRARY}
            INTERFACE_INCLUDE_DIRECTORIES ${TUTTI_${tutti_name}_INCLUDE})
    endif()
endforeach()
