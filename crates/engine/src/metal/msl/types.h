// Definitions for every kernel: names of entry points, and the types of arithmetic.

#define NAME_JOINED(name, suffix) name##suffix
#define NAME_EXPANDED(name, suffix) NAME_JOINED(name, suffix)

// The name of an entry point: that of the source followed by the types it is compiled for.
#define ENTRY(name) NAME_EXPANDED(name, SUFFIX)

// The type in which arithmetic on elements of a type is done: float for floats, the type itself for others.
template <typename T> struct computed { typedef T type; };
template <> struct computed<half> { typedef float type; };
template <> struct computed<bfloat> { typedef float type; };
template <typename T> using computed_t = typename computed<T>::type;
