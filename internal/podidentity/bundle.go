package podidentity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Limits of a bundle. Sidecars of every version refuse an answer of more than
// 64 KiB.
const (
	maxBundle = 16 << 10
	maxCAs    = 16
)

const certificateType = "CERTIFICATE"

var errLargeBundle = fmt.Errorf("they take more than %d bytes", maxBundle)

// ParseBundle returns the CAs of a PEM bundle: all of them, or an error. A
// bundle with a private key is an error.
func ParseBundle(text []byte) ([]*x509.Certificate, error) {
	if len(text) > maxBundle {
		return nil, errLargeBundle
	}
	var cas []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if len(cas) == maxCAs {
			return nil, fmt.Errorf("they are more than %d", maxCAs)
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if block.Type != certificateType || err != nil || !ca.IsCA {
			return nil, fmt.Errorf("PEM block %d is no certificate of a CA", len(cas)+1)
		}
		cas = append(cas, ca)
	}
	switch {
	case len(cas) == 0:
		return nil, errors.New("they hold no PEM certificate")
	case bytes.Count(text, []byte("-----BEGIN ")) != len(cas): // Decode skips damaged blocks
		return nil, errors.New("a PEM block is damaged")
	case len(EncodeBundle(cas)) > maxBundle:
		return nil, errLargeBundle
	}
	return cas, nil
}

// EncodeBundle returns CAs as PEM, without the comments and headers that a
// bundle may have.
func EncodeBundle(cas []*x509.Certificate) string {
	var all bytes.Buffer
	for _, ca := range cas {
		all.Write(pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: ca.Raw}))
	}
	return all.String()
}
