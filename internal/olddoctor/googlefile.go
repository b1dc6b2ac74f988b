package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// externalAccount is the part of a file of the type external_account that says whose token is exchanged, and where it is (AIP-4117).
type externalAccount struct {
	Type     string `json:"type"`
	Audience string `json:"audience"`
	Source   struct {
		File   string `json:"file"`
		Format struct {
			Type string `json:"type"`
		} `json:"format"`
	} `json:"credential_source"`
	Impersonation string `json:"service_account_impersonation_url"`
}

// adoptGoogleFile takes over the token file, the provider and the service account that a file for Google's SDKs names. The exchange
// is still what they make of that file.
func (e *examination) adoptGoogleFile(ctx context.Context) {
	const prefix = "//iam.googleapis.com/"
	path := e.Getenv(googleFile)
	if e.Provider.GetName() != "gcp" || path == "" || e.TokenFile != "" || e.Annotations != nil {
		return
	}
	content, err := readToken(ctx, path)
	if err != nil {
		return // check 1 tells
	}
	var file externalAccount
	if json.Unmarshal([]byte(content), &file) != nil || file.Type != "external_account" || file.Source.File == "" ||
		file.Source.Format.Type == "json" || !strings.HasPrefix(file.Audience, prefix) {
		return // it is of no kind that is known here
	}
	e.TokenFile, e.byFile = file.Source.File, true
	e.adopted = "the file in " + googleFile
	e.Annotations = map[string]string{poolProviderAnnotation: strings.TrimPrefix(file.Audience, prefix)}
	_, email, _ := strings.Cut(file.Impersonation, "/serviceAccounts/")
	if email, _, ok := strings.Cut(email, ":"); ok {
		e.Annotations[emailAnnotation] = email
	}
}

// Check 6, for a token that such a file names too: the provider may allow other audiences than the usual one, which only the
// exchange tells. A token for the API server is given to no cloud.
func (e *examination) judgeAudience(ctx context.Context) Finding {
	f := e.checkAudience(ctx)
	c := e.token.claims
	if !e.byFile || f.Result != Fail || c == nil {
		return f
	}
	f.tentative = !slices.Contains(c.Audience, c.Issuer) && !slices.ContainsFunc(c.Audience, isAPIServer)
	if f.Remedy = ""; f.tentative {
		f.Remedy = "gcloud iam workload-identity-pools providers update-oidc " + e.poolProviderWord() + " --allowed-audiences=AUDIENCES"
	}
	return e.widening(f, "give the projected token (volumes[].projected.sources[].serviceAccountToken) the audience that is expected")
}
