// Package canon decides whether two tool calls are the same intended action.
//
// A call key says "this is a retry"; the intent hash checks it. Two attempts under one key are one action exactly when tool
// name and arguments are the same JSON values, however they were spelled. So the hash is not taken over the bytes that
// arrived but over their canonical form: white space, key order, escapes and number spellings are gone, and nothing else is.
//
// # The canonical form
//
// It is JSON text, in UTF-8, and its own canonical form:
//
//   - No white space. Literals as they are.
//   - Strings as in RFC 8785: the short escapes \b \t \n \f \r \" \\, the other characters below U+0020 as \u00xx with
//     lower-case digits, everything else as itself. No Unicode normalisation: "é" in one code point and in two are different.
//   - Members of an object sorted by their unescaped keys as sequences of UTF-16 code units, as in RFC 8785. Array order is kept.
//   - Numbers by their exact decimal value, see below. This is the one departure from RFC 8785, which rounds to doubles.
//
// # The rule for numbers
//
// Two spellings are equal exactly when they denote the same rational number: 5, 5.0, 5e0 and 50e-1 are one value; 2^53 and
// 2^53+1 are two; -0, 0.0 and 0e9 are 0. Nothing is rounded and nothing is expanded, so 1e400 costs five bytes.
//
// Write a value that is not zero as ±0.d₁d₂…dₖ × 10ⁿ with d₁ and dₖ not 0. Its canonical form is laid out as ECMAScript lays out
// the digits of a number (ECMA-262, Number::toString), but with these exact digits in place of the shortest ones of a double:
//
//	k ≤ n ≤ 21   the digits, then n-k zeros          1500, 100000000000000000000
//	0 < n ≤ 21   point after the n-th digit          1.5, 12.25
//	-6 < n ≤ 0   "0.", then -n zeros, the digits     0.000001
//	otherwise    d₁, "." and the rest if any, "e+" or "e-", and |n-1|      1e+21, 1.5e-7, 1e+400
//
// So for every number that survives a round trip through a double in its shortest spelling (any of up to 15 significant
// digits in a double's range) the form is byte for byte that of RFC 8785, and a client in another language may use any RFC 8785
// library. Only longer numbers need this rule. Numbers with |n-1| above [MaxExponent] are refused, in every spelling.
//
// # The intent hash
//
// The SHA-256 of the canonical form of the two-element array [tool, arguments], so that no tool name can run into its arguments:
//
//	sha256(`["create_pr",{"branch":"fix/1","draft":false}]`)
//
// The hash of one argument is the first [ArgHashBytes] bytes of the SHA-256 of its member as it stands in that text, such as
//
//	sha256(`"draft":false`)[:6]
//
// Absent, empty and null arguments are the empty object. An argument that is null is not the same as one that is absent.
//
// # Refused
//
// Beside everything that RFC 8259 does not allow: invalid UTF-8 and lone surrogates (many parsers turn both into U+FFFD, which
// would make different arguments equal), duplicate keys after unescaping (parsers disagree on which one counts), nesting deeper
// than [MaxDepth], a byte order mark, and anything after the value. See [Error]. The caller bounds the size of the text; time and
// memory are linear in it, but for the sorting of keys (n log n, and one more copy of what lies inside, at each unsorted level).
package canon
