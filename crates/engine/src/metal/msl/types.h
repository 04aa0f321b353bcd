// What every kernel needs: names of entries, and the types that arithmetic is done in.

#define NAME_JOINED(name, suffix) name##suffix
#define NAME_EXPANDED(name, suffix) NAME_JOINED(name, suffix)

// The name of an entry: that of the source followed by the types it is compiled for.
#define ENTRY(name) NAME_EXPANDED(name, SUFFIX)

// The type in which arithmetic on elements of a type is done: floats in float, all else as it is.
template <typename T> struct computed { typedef T type; };
template <> struct computed<half> { typedef float type; };
template <> struct computed<bfloat> { typedef float type; };
template <typename T> using computed_t = typename computed<T>::type;
