package aws

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/awsname"
)

var _ provider.GitCredentialsProvider = (*Provider)(nil)

const gitPath = "/v1/repos/"

// ParseGitRepository accepts repositories of AWS CodeCommit, of all partitions:
// https://git-codecommit[-fips].<region>.<suffix>/v1/repos/<name>, in any case
// and with or without :443.
func (*Provider) ParseGitRepository(gitURL *url.URL, _ *provider.Options) (gitInput string, err error) {
	host := strings.ToLower(strings.TrimSuffix(gitURL.Host, ":443")) // the signature covers the canonical name
	if _, ok := awsname.ParseGitHost(host); !ok {
		return "", self.Misconfigured(
			"use https://git-codecommit.<region>.amazonaws.com/v1/repos/<name>, or choose another provider",
			"%.300q is not a host of AWS CodeCommit", gitURL.Host)
	}
	name, ok := strings.CutPrefix(gitURL.Path, gitPath)
	if !ok || gitURL.RawPath != "" || !validRepositoryName(name) {
		return "", self.Misconfigured("use "+gitPath+"<name>",
			"%.300q is not the path of a repository of AWS CodeCommit", gitURL.Path)
	}
	return host + gitURL.Path, nil
}

// validRepositoryName accepts names of CodeCommit: up to 100 letters, digits,
// ".", "_" and "-", not ending in ".git".
func validRepositoryName(s string) bool {
	const maxLength = 100
	return s != "" && s != "." && s != ".." && len(s) <= maxLength && !strings.HasSuffix(s, ".git") && allOf(s, "._-")
}

func readGitInput(input string) (host, path, region string) {
	slash := strings.IndexByte(input, '/')
	host, path = input[:slash], input[slash:]
	region, _ = awsname.ParseGitHost(host)
	return host, path, region
}

// GetAccessTokenOptionsForGitRepository selects STS in the repository's region,
// unless the caller chose a region.
func (*Provider) GetAccessTokenOptionsForGitRepository(gitInput string,
	opts *provider.Options) ([]provider.Option, error) {
	_, _, region := readGitInput(gitInput)
	return inRegion(region, opts), nil
}

// NewGitCredentials signs for the repository without network access. The role
// needs codecommit:GitPull or codecommit:GitPush.
func (*Provider) NewGitCredentials(_ context.Context, gitInput string, accessToken auth.Token, _ *provider.Options,
) (*auth.GitCredentials, error) {
	token, err := FromToken(accessToken)
	if err != nil {
		return nil, err
	}
	host, path, region := readGitInput(gitInput)
	parts := token.parts()
	user := parts[partKeyID]
	if session := parts[partSessionToken]; session != "" {
		user += "%" + session
	}
	now := time.Now()
	password := signGit(parts[partSecret], host, path, region, now)
	return provider.NewGitBasicCredentials(user, password, token.endsBy(now.Add(signatureLife))), nil
}

// signatureLife is the lifetime of a signature, 15 minutes, less one minute of
// clock skew.
const signatureLife = 14 * time.Minute

// endsBy returns the earlier of end and the expiry of the credentials, for
// something that they have signed.
func (t *Token) endsBy(end time.Time) time.Time {
	if !t.ExpiresAt().IsZero() && t.ExpiresAt().Before(end) {
		return t.ExpiresAt()
	}
	return end
}

// signGit returns a password for CodeCommit, "<date>Z<signature>". It is
// Signature Version 4 in the variant of git-remote-codecommit: the method is
// GIT, the payload has no hash, and the signed date has no Z.
func signGit(secret, host, path, region string, now time.Time) string {
	date := now.UTC().Format("20060102T150405")
	day := date[:len("20060102")]
	canonical := "GIT\n" + path + "\n\nhost:" + host + "\n\nhost\n"
	sum := sha256.Sum256([]byte(canonical))
	scope := day + "/" + region + "/codecommit/aws4_request"
	toSign := "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, region, "codecommit", "aws4_request"} {
		key = mac(key, part)
	}
	return date + "Z" + hex.EncodeToString(mac(key, toSign))
}

func mac(key []byte, data string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(data))
	return h.Sum(nil)
}
