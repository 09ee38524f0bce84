import type { Principal } from '@framework/core';
import { describe, expect, test } from 'vitest';

import { global, ownerId, walletOf } from '../../test/wallet-specification.js';
import { WalletAccess, handlersOnly, securitySettings } from './wallet-access.js';

const wallet = walletOf('10');
const handledEvent = { handler: 'settle-transfer', eventId: 'event-1', shard: global };
const roles = ['operator'];

function accessWith(jwt: object | undefined): WalletAccess {
  const needed = { issuer: 'https://id.example.com', audience: 'wallet-service', jwksFile: 'jwks.json' };
  const security = jwt === undefined ? {} : { jwt: { ...needed, ...jwt } };
  return new WalletAccess({ getById: async () => wallet }, securitySettings({ security }));
}

/** How each policy decides about the wallet: the code of its error, or `undefined` when it allows. */
async function decisions(access: WalletAccess, principal: Principal) {
  const request = { principal, handledEvent: undefined };
  const about = { walletId: wallet.id, sourceId: wallet.id, ownerId: wallet.ownerId };
  const decided = Object.entries({
    opening: access.opening,
    owning: access.owning,
    closing: access.closing,
    sending: access.sending,
  }).map(async ([name, policy]) => {
    const code = await (async () => policy.authorize({ ...request, params: about }))().catch(
      (error: unknown) => (error as { readonly code: string }).code,
    );
    return [name, code] as const;
  });
  return Object.fromEntries(await Promise.all(decided));
}

const allowed = { opening: undefined, owning: undefined, closing: undefined, sending: undefined };
const refused = {
  opening: 'access-denied',
  owning: 'entity-not-found',
  closing: 'entity-not-found',
  sending: 'entity-not-found',
};

describe('access to a wallet', () => {
  test('belongs to its owner', async () => {
    expect(await decisions(accessWith({}), { name: ownerId })).toEqual(allowed);
    expect(await decisions(accessWith({}), { name: 'somebody else' })).toEqual(refused);
  });

  test('lets operators open and close', async () => {
    const operator = { name: 'somebody else', roles };
    expect(await decisions(accessWith({ operatorRole: 'operator' }), operator)).toEqual({
      ...refused,
      opening: undefined,
      closing: undefined,
    });
  });

  test('knows no operators unless a role is configured', async () => {
    expect(await decisions(accessWith({}), { name: 'somebody else', roles })).toEqual(refused);
  });

  test('is open to everybody without authentication', async () => {
    expect(await decisions(accessWith(undefined), { name: 'wallet-service' })).toEqual(allowed);
  });
});

test('the steps of a saga are executed by handlers only, for any principal', () => {
  const request = { principal: { name: ownerId, roles }, params: {} };
  expect(handlersOnly.authorize({ ...request, handledEvent })).toBeUndefined();
  expect(() => handlersOnly.authorize({ ...request, handledEvent: undefined })).toThrow(
    expect.objectContaining({ code: 'access-denied' }),
  );
});
