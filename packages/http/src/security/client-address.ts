import ipaddr from 'ipaddr.js';
import type { IncomingMessage } from 'node:http';
import { type Socket, isIP } from 'node:net';

type Address = ReturnType<typeof ipaddr.process>;
type AddressRange = [network: Address, bits: number];

/** Parses an address, or a range in CIDR notation; `undefined` when it is neither. */
export function addressRange(text: string): AddressRange | undefined {
  const [address = '', bits] = text.split('/', 2);
  if (isIP(address) === 0 || address.includes('%')) return undefined;
  if (bits !== undefined) return ipaddr.isValidCIDR(text) ? rangeOf(...ipaddr.parseCIDR(text)) : undefined;
  const network = ipaddr.process(address);
  return [network, network.kind() === 'ipv4' ? 32 : 128];
}

/** Addresses of clients are converted to IPv4 where that is possible, so a range must be, too. */
function rangeOf(network: Address, bits: number): AddressRange {
  const isMapped = 'isIPv4MappedAddress' in network && network.isIPv4MappedAddress() && bits >= mappedBits;
  return isMapped ? [network.toIPv4Address(), bits - mappedBits] : [network, bits];
}

/** How many bits of an IPv6 address say that it is one of IPv4. */
const mappedBits = 96;

/** The client to which a request or a connection is counted. */
export interface Client {
  /**
   * Its IPv4 address, or the network of its IPv6 address, such as `2001:db8:0:1::/64`: a client usually has a whole /64 to itself.
   * `unknown` without an address.
   */
  readonly address: string;
  /** Whether the limits per address apply. */
  readonly isLimited: boolean;
  /** Whether it is a trusted proxy, which sends the requests of others. */
  readonly isProxy: boolean;
}

/** Identifies the clients of a server by their addresses. */
export class ClientAddresses {
  readonly #ranges: Record<'proxy' | 'unlimited', AddressRange[]>;

  /**
   * Addresses and ranges are written as in the settings: `192.0.2.7`, `10.0.0.0/8`, `fd00::/8`.
   *
   * @param options.trustedProxies the proxies whose `X-Forwarded-For` is trusted
   * @param options.unlimited the clients to which the limits per address do not apply
   * @throws TypeError when a text is neither an address nor a range
   */
  constructor(options: {
    readonly trustedProxies: readonly string[];
    readonly unlimited: readonly string[];
  }) {
    const { trustedProxies, unlimited } = options;
    this.#ranges = { proxy: trustedProxies.map(parseRange), unlimited: unlimited.map(parseRange) };
  }

  /** The client at the other end of a connection, which may be a proxy. */
  atAddress(text: string | undefined): Client {
    if (text === undefined || isIP(text) === 0)
      return { address: 'unknown', isLimited: true, isProxy: false };
    // A zone, such as that of fe80::1%eth0, belongs to the link and not to the client.
    const address = ipaddr.process(text.replace(/%.*$/, ''));
    const range = ipaddr.subnetMatch(address, this.#ranges, 'none');
    return { address: keyOf(address), isLimited: range === 'none', isProxy: range === 'proxy' };
  }

  /**
   * The client that sent a request to a trusted proxy: the last entry of `X-Forwarded-For` that is no trusted proxy. Entries before
   * it can be forged. A request without such an entry is the proxy's own. If the entry is no address, the request is counted with
   * all others of the proxy of which the same is true, and is limited.
   */
  behind(proxy: Client, { headers }: Pick<IncomingMessage, 'headers'>): Client {
    const forwarded = headers['x-forwarded-for'] ?? '';
    for (const entry of String(forwarded).split(',').toReversed()) {
      const text = entry.trim();
      if (text === '') continue;
      const client = this.atAddress(withoutPort(text));
      if (!client.isProxy) return client.address === 'unknown' ? { ...proxy, isLimited: true } : client;
    }
    return proxy;
  }
}

function parseRange(text: string): AddressRange {
  const range = addressRange(text);
  if (range === undefined)
    throw new TypeError(`${text} is neither an address nor a range such as 10.0.0.0/8`);
  return range;
}

const addressAndPort = /^(?:\[([^\]]*)\]|([\d.]+))(?::\d+)?$/;

/** The address of an entry to which the proxy has added the port of the client, or the brackets of IPv6. */
function withoutPort(entry: string): string {
  const [, inBrackets, plain] = addressAndPort.exec(entry) ?? [];
  return inBrackets ?? plain ?? entry;
}

/** The number of 16-bit parts of an IPv6 address that name the network of a client. */
const networkParts = 4;

function keyOf(address: Address): string {
  if (!('parts' in address)) return address.toString();
  return `${address.parts
    .slice(0, networkParts)
    .map((part) => part.toString(16))
    .join(':')}::/64`;
}

/** Limits the number of connections that a client has at the same time. */
export class ConnectionCounts {
  readonly #max: number;
  readonly #counts = new Map<string, number>();

  /** @param max the maximum number of connections of each client that is limited */
  constructor(max: number) {
    this.#max = max;
  }

  /** Counts a new connection until it closes. Destroys it and returns `false` when its client has the maximum number already. */
  admit({ address, isLimited }: Client, socket: Socket): boolean {
    if (!isLimited) return true;
    const count = this.#counts.get(address) ?? 0;
    if (count >= this.#max) {
      socket.destroy();
      return false;
    }
    this.#counts.set(address, count + 1);
    socket.once('close', () => {
      const left = (this.#counts.get(address) ?? 1) - 1;
      if (left === 0) this.#counts.delete(address);
      else this.#counts.set(address, left);
    });
    return true;
  }
}
