import { nkeys } from '@nats-io/transport-node';

/** What a server of NATS is told of its operator and accounts, and how a user signs in. */
export interface NatsAccounts {
  /** Lines of the server's configuration. */
  readonly configuration: string;
  /** The content of the user's file of credentials. */
  readonly credentials: string;
}

const unlimited = {
  subs: -1,
  data: -1,
  payload: -1,
  imports: -1,
  exports: -1,
  wildcards: true,
  conn: -1,
  leaf: -1,
};
const streams = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };

/**
 * Makes an operator with one account, and one user of it.
 *
 * @see https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/jwt
 */
export function makeAccounts(): NatsAccounts {
  const [operator, account, user] = [nkeys.createOperator(), nkeys.createAccount(), nkeys.createUser()];
  const system = nkeys.createAccount();
  const operatorToken = tokenOf(operator, operator, { type: 'operator', version: 2 });
  const accountToken = tokenOf(operator, account, {
    type: 'account',
    version: 2,
    limits: { ...unlimited, ...streams },
  });
  const systemToken = tokenOf(operator, system, { type: 'account', version: 2, limits: unlimited });
  const userToken = tokenOf(account, user, { type: 'user', version: 2, subs: -1, data: -1, payload: -1 });
  const seed = new TextDecoder().decode(user.getSeed());
  return {
    configuration: `operator: ${operatorToken}
system_account: ${system.getPublicKey()}
resolver: MEMORY
resolver_preload: { ${account.getPublicKey()}: ${accountToken}, ${system.getPublicKey()}: ${systemToken} }
`,
    credentials: `-----BEGIN NATS USER JWT-----
${userToken}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
${seed}
------END USER NKEY SEED------
`,
  };
}

/** A token in which one key says who another one is. */
function tokenOf(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, nats: object): string {
  const claims = {
    jti: subject.getPublicKey(),
    iat: Math.floor(Date.now() / 1_000),
    iss: issuer.getPublicKey(),
    name: 'test',
    sub: subject.getPublicKey(),
    nats,
  };
  const parts = [{ typ: 'JWT', alg: 'ed25519-nkey' }, claims].map((part) =>
    Buffer.from(JSON.stringify(part)).toString('base64url'),
  );
  const signed = parts.join('.');
  return `${signed}.${Buffer.from(issuer.sign(Buffer.from(signed))).toString('base64url')}`;
}
