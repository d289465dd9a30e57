package fence

// Parse is parse, for fuzzing.
var Parse = parse
