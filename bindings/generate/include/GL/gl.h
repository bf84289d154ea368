/* Stand-in: the two scalar types of OpenGL that the interop calls take. */
typedef unsigned int GLenum;
typedef unsigned int GLuint;
