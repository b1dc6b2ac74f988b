// Package tokens manages the bootstrap tokens of a cluster: a [Manager]
// creates, lists and deletes their Secrets, for programs of administrators. The
// example of the package does all three.
package tokens
