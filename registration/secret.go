package registration

// Keys of the agent's Secret. All other keys are files of the driver's credential, and the driver's state.
const (
	// SecretKeyKubeconfig holds the kubeconfig. The files that it names are other keys.
	SecretKeyKubeconfig = "kubeconfig"
	// SecretKeyClusterName and SecretKeyAgentName hold the names in the credential.
	SecretKeyClusterName = "cluster-name"
	SecretKeyAgentName   = "agent-name"
	// SecretKeyAuthType holds the auth type of the driver that made the credential. A driver never sees another driver's credential.
	SecretKeyAuthType = "auth-type"
)
