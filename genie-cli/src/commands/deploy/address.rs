//! `--to`: how a device is reached and the folder on it.

use std::str::FromStr;

use anyhow::{Context, Error, Result, bail, ensure};

/// A folder on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// By `ssh`; the folder is relative to the user's home unless it begins with `/`.
    Ssh {
        /// What `ssh` takes: `host`, `user@host`, a name of its config.
        host: String,
        /// The folder.
        dir: String,
    },
    /// By `adb`.
    Adb {
        /// As `adb devices` lists it.
        serial: String,
        /// The folder, from `/` on.
        dir: String,
    },
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const FORMS: &str = "expected `ssh:HOST:DIR` or `adb:SERIAL:DIR`";
        let (kind, rest) = text.split_once(':').with_context(|| format!("`{text}`: {FORMS}"))?;
        let address = match kind {
            "ssh" => {
                // An IPv6 address has colons of its own, in brackets; `ssh` wants it without them.
                let (host, dir) = match rest.split_once("]:") {
                    Some((host, dir)) => (host.replacen('[', "", 1), dir),
                    None => {
                        let (host, dir) = rest.split_once(':').with_context(|| format!("`{text}`: {FORMS}"))?;
                        (host.to_owned(), dir)
                    }
                };
                Self::Ssh { host, dir: dir.strip_prefix("~/").unwrap_or(dir).to_owned() }
            }
            "adb" => {
                // A serial may be `host:port`, a folder begins with a slash.
                let at = rest.find(":/").with_context(|| format!("`{text}`: {FORMS}, DIR from `/` on"))?;
                Self::Adb { serial: rest[..at].to_owned(), dir: rest[at + 1..].to_owned() }
            }
            other => bail!("`{text}`: unknown way `{other}`, {FORMS}"),
        };
        let (Self::Ssh { host: whom, dir } | Self::Adb { serial: whom, dir }) = &address;
        ensure!(!whom.is_empty() && !whom.starts_with('-'), "`{text}`: {FORMS}, found no device in it");
        let dir = dir.trim_end_matches('/');
        ensure!(!dir.is_empty() && !dir.starts_with('-'), "`{text}`: {FORMS}, found no folder in it");
        ensure!(!dir.contains('\n') && !dir.contains('\''), "`{text}`: a folder without quotes and line ends, please");
        Ok(match &address {
            Self::Ssh { host, .. } => Self::Ssh { host: host.clone(), dir: dir.to_owned() },
            Self::Adb { serial, .. } => Self::Adb { serial: serial.clone(), dir: dir.to_owned() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn both_forms_are_read() {
        let ssh = |host: &str, dir: &str| Address::Ssh { host: host.to_owned(), dir: dir.to_owned() };
        let adb = |serial: &str, dir: &str| Address::Adb { serial: serial.to_owned(), dir: dir.to_owned() };
        for (text, expected) in [
            ("ssh:board:genie", ssh("board", "genie")),
            ("ssh:root@10.0.0.2:/opt/my genie/", ssh("root@10.0.0.2", "/opt/my genie")),
            ("ssh:board:~/genie", ssh("board", "genie")),
            ("ssh:me@[fe80::1]:genie", ssh("me@fe80::1", "genie")),
            ("adb:1a2b3c:/data/local/tmp/genie", adb("1a2b3c", "/data/local/tmp/genie")),
            ("adb:192.168.1.5:5555:/data/local/tmp/g", adb("192.168.1.5:5555", "/data/local/tmp/g")),
        ] {
            assert_eq!(text.parse::<Address>().unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_address_is_named() {
        for (text, expected) in [
            ("board", "expected `ssh:HOST:DIR` or `adb:SERIAL:DIR`"),
            ("ftp:board:genie", "unknown way `ftp`"),
            ("ssh:board", "expected `ssh:HOST:DIR`"),
            ("ssh::genie", "found no device"),
            ("ssh:-oProxyCommand=x:genie", "found no device"),
            ("ssh:board:/", "found no folder"),
            ("adb:1a2b:data", "DIR from `/` on"),
            ("ssh:board:it's", "without quotes"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
