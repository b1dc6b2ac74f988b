package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"unicode/utf8"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
)

// variable is one of the environment that a provider looks at for ServiceAccounts.
type variable struct {
	name, provider string
	// flag says the same, if there is one.
	flag string
	path bool
}

var shaping = []variable{
	{name: "AWS_REGION", provider: aws.ProviderName, flag: "region"},
	{name: "AZURE_TENANT_ID", provider: azure.ProviderName},
	{name: "AZURE_AUTHORITY_HOST", provider: azure.ProviderName, flag: "authority-host"},
	{name: "AZURE_ENVIRONMENT_FILEPATH", provider: azure.ProviderName, path: true},
	{name: "GCE_METADATA_HOST", provider: gcp.ProviderName},
}

// key is the hash of a JSON document, which keeps its parts apart.
func (id *identity) key(s *source, r request) (cache.Key, error) {
	document := struct {
		Version     int
		Request     request
		Source      *sourceKey
		Flags       map[string]any
		Environment map[string]string
		Files       map[string]string
	}{1, r, s.key, map[string]any{}, map[string]string{}, map[string]string{}}
	for _, target := range r.Target {
		if !utf8.ValidString(target) { // JSON would make the same of two
			return cache.Key{}, usagef("%.100q is not UTF-8", target)
		}
	}
	values := id.flagValues()
	for _, f := range id.settings() {
		value, ok := values[f.name]
		switch {
		case !ok || f.marks&aboutSource != 0:
			continue
		case f.marks&shapesByContent != 0:
			content, _ := id.clientSecret() // as in fileSum
			document.Files[f.name] = hex.EncodeToString(sum(string(content)))
		}
		document.Flags[f.name] = value
	}
	for _, v := range shaping {
		value := os.Getenv(v.name)
		document.Environment[v.name] = value
		if v.path && value != "" {
			document.Files[v.name] = fileSum(value)
		}
	}
	content, err := json.Marshal(document)
	return sha256.Sum256(content), err
}

// fileSum is the hash of a file's content. One that cannot be read is as an empty one here: whoever needs it tells.
func fileSum(name string) string {
	if name == "" {
		return ""
	}
	content, _ := readBounded(name) // see above
	return hex.EncodeToString(sum(string(content)))
}

func sum(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}
