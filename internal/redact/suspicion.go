package redact

import "strings"

const (
	// maxPlainRun is the length up to which letters and digits in a row are taken for a name or an ID, in bytes.
	maxPlainRun = 39
	// sample is how much of a message is compared at once, in bytes.
	sample = minSecret
)

// mayRepeat is a quick look whether a Scrubber could find a secret in a message: few messages repeat anything, and looking
// thoroughly takes thirty times as long as all else about a failure. It may be wrong in one direction only, except for
// encodings of less than 40 characters.
func mayRepeat(message string, secrets []string) bool {
	return mayEncode(message) || mayContain(message, secrets)
}

// mayEncode finds escapes, and runs of characters that are longer than those of names and IDs.
func mayEncode(message string) bool {
	run := 0
	for i := range len(message) {
		switch c := message[i]; {
		case c == '%' || c == '\\' || c == '&':
			return true
		case inBase64(c):
			run++
			if run > maxPlainRun {
				return true
			}
		default:
			run = 0
		}
	}
	return false
}

// mayContain compares samples that are so close together that each part of a secret that a Scrubber knows holds one.
func mayContain(message string, secrets []string) bool {
	for _, secret := range secrets {
		step := minPart - sample + 1
		if len(secret) < 2*minPart {
			step = 1
		}
		for i := 0; i+sample <= len(message); i += step {
			if strings.Contains(secret, message[i:i+sample]) {
				return true
			}
		}
	}
	return false
}
