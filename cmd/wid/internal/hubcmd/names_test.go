package hubcmd

const (
	eksManaged  = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
	eksAttacker = "arn:aws:eks:eu-west-1:666666666666:cluster/evil"
)
