package azurename

import (
	"strings"
	"testing"
)

func TestValidGUID(t *testing.T) {
	const good = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	for s, want := range map[string]bool{
		good: true, strings.ToUpper(good): true, "": false, good + "0": false, good[1:]: false, "{" + good + "}": false,
		strings.Replace(good, "-", "0", 1): false, strings.Replace(good, "7", "g", 1): false,
		strings.Replace(good, "72", "7-", 1): false,
		strings.Replace(good, "7", "/", 1):   false, strings.Replace(good, "7", "\x00", 1): false,
		strings.ReplaceAll(good, "-", ""):     false,
		strings.Replace(good, "7", "\x10", 1): false, strings.Replace(good, "7", "A", 1): true,
	} {
		if got := ValidGUID(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}

func TestValidTenant(t *testing.T) {
	for s, want := range map[string]bool{
		"contoso.onmicrosoft.com": true, "contoso.com": true, "Contoso.COM": true, "a.b": true,
		"": false, "common": false, "organizations": false, "consumers": false, "contoso": false, ".com": false,
		"contoso.": false, "a..b": false,
		"-a.com": false, "a-.com": false, "a_b.com": false, "a.com/x": false, "a.com?x": false, "a.com#x": false,
		"../a.com": false, "a.com%2f": false,
		"a.com:443": false, "u@a.com": false, "ä.com": false, "a.com\n": false, strings.Repeat("a", 64) + ".com": false,
		strings.Repeat("a.", 127) + "com": false,
	} {
		if got := ValidTenant(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}

func TestClouds(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Clouds() {
		for _, s := range append([]string{c.Name, c.ManagementHost, c.ManagementAudience, c.RegistrySuffix, c.BlobSuffix,
			c.FederatedAudience}, c.Authorities...) {
			if s == "" || seen[s] {
				t.Errorf("%q stands in two clouds, or is missing in %s", s, c.Name)
			}
			seen[s] = true
		}
	}
}

func TestParseCluster(t *testing.T) {
	const id = "/subscriptions/0b1f6471-1bf0-4dda-aec3-111122223333/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
	for _, s := range []string{id, strings.ToLower(id), strings.ToUpper(id)} {
		c, ok := ParseCluster(s)
		if !ok || !strings.EqualFold(c.Path(), id) || !strings.HasPrefix(c.Path(), "/subscriptions/") {
			t.Errorf("%q: %+v, %t", s, c, ok)
		}
	}
}
