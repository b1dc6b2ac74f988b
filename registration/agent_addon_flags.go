package registration

import "github.com/spf13/pflag"

// AddOnFlags holds the add-on settings of an agent's command line. The zero value has the defaults. The program builds the drivers
// and picks one with Pick.
type AddOnFlags struct {
	// KubeClientAuth names the driver of kubeClient items. Default: AuthTypeCSR.
	KubeClientAuth string
	// TokenExpirationSeconds is the lifetime that the driver token requests. 0 means one year.
	TokenExpirationSeconds int64
}

// BindFlags adds the flags to fs:
//
//	--addon-kubeclient-registration-auth   csr (the default) or token
//	--addon-token-expiration-seconds       at least 600, or 0 (the default) for one year
func (f *AddOnFlags) BindFlags(fs *pflag.FlagSet) {
	setDefault(&f.KubeClientAuth, AuthTypeCSR)
	fs.StringVar(&f.KubeClientAuth, "addon-kubeclient-registration-auth", f.KubeClientAuth,
		"auth type by which add-ons reach the hub's API server, csr or token")
	fs.Int64Var(&f.TokenExpirationSeconds, "addon-token-expiration-seconds", f.TokenExpirationSeconds,
		"lifetime of add-on tokens that the auth type token asks for, in seconds; 0 for one year")
}
