// How windows move over an image; the struct is that of metal/conv.rs.
struct Windows {
    // From channel to channel, row to row and column to column of the image, in elements.
    long channel;
    long row;
    long column;
    uint height;
    uint width;
    uint taps_height;
    uint taps_width;
    uint stride_height;
    uint stride_width;
    uint padding_height;
    uint padding_width;
    uint dilation_height;
    uint dilation_width;
    // Places of a window along the width.
    uint places;
    uint padding;
};
