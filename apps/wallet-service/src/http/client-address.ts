import ipaddr from 'ipaddr.js';
import type { IncomingMessage } from 'node:http';
import { type Socket, isIP } from 'node:net';

type Address = ReturnType<typeof ipaddr.process>;

/** A range of addresses; a single address is a range of one. */
export type AddressRange = readonly [network: Address, bits: number];

/** Parses an address, or a range in CIDR notation; `undefined` when it is neither. */
export function addressRange(text: string): AddressRange | undefined {
  const [address = '', bits] = text.split('/', 2);
  if (isIP(address) === 0) return undefined;
  if (bits !== undefined) return ipaddr.isValidCIDR(text) ? ipaddr.parseCIDR(text) : undefined;
  const network = ipaddr.process(address);
  return [network, network.kind() === 'ipv4' ? 32 : 128];
}

/** The client to which a request or a connection is counted. */
export interface Client {
  /** Its IPv4 address, or the network of its IPv6 address: a client usually has a whole /64 to itself. */
  readonly address: string;
  /** Whether the limits per address apply. */
  readonly isLimited: boolean;
  /** Whether it is a trusted proxy, which sends the requests of others. */
  readonly isProxy: boolean;
}

/** Tells the clients of a server apart by their addresses. */
export class ClientAddresses {
  readonly #proxies: readonly AddressRange[];
  readonly #unlimited: readonly AddressRange[];

  /**
   * @param options.trustedProxies whose `X-Forwarded-For` is believed
   * @param options.unlimited to whom the limits per address do not apply
   */
  constructor(options: {
    readonly trustedProxies: readonly AddressRange[];
    readonly unlimited: readonly AddressRange[];
  }) {
    this.#proxies = options.trustedProxies;
    this.#unlimited = options.unlimited;
  }

  /** The client at the other end of a connection, which may be a proxy. */
  atAddress(text: string | undefined): Client {
    const address = parse(text);
    if (address === undefined) return { address: 'unknown', isLimited: true, isProxy: false };
    const isProxy = isIn(this.#proxies, address);
    return { address: keyOf(address), isLimited: !isProxy && !isIn(this.#unlimited, address), isProxy };
  }

  /**
   * The client that sent a request to a trusted proxy: the last entry of `X-Forwarded-For` that is no trusted proxy. Entries before
   * it can be forged. A request without such an entry is the proxy's own. If the entry is no address, the request is counted with
   * all others of the proxy of which the same is true: it has a client, who is limited.
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

const addressAndPort = /^(?:\[([^\]]*)\]|([\d.]+))(?::\d+)?$/;

/** The address of an entry to which the proxy has added the port of the client, or the brackets of IPv6. */
function withoutPort(entry: string): string {
  const [, inBrackets, plain] = addressAndPort.exec(entry) ?? [];
  return inBrackets ?? plain ?? entry;
}

function parse(text: string | undefined): Address | undefined {
  return text === undefined || isIP(text) === 0 ? undefined : ipaddr.process(text);
}

function isIn(ranges: readonly AddressRange[], address: Address): boolean {
  return ranges.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}

/** How many 16-bit parts of an IPv6 address name the network of a client. */
const networkParts = 4;

function keyOf(address: Address): string {
  if (!('parts' in address)) return address.toString();
  return `${address.parts
    .slice(0, networkParts)
    .map((part) => part.toString(16))
    .join(':')}::/64`;
}

/** Limits how many connections a client may have at the same time. */
export class ConnectionCounts {
  readonly #max: number;
  readonly #counts = new Map<string, number>();

  constructor(max: number) {
    this.#max = max;
  }

  /** Counts a new connection until it is closed; closes it at once if its client has as many as it may have. */
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
