import { type Broker, type Producer, ResponseError, type metadataV12 } from '@platformatic/kafka';

/** What is known of topics, and of the servers that lead their partitions, by their numbers. */
export interface DescribedTopics {
  readonly topics: ReadonlyMap<
    string,
    { readonly partitionsCount: number; readonly partitions: readonly { readonly leader: number }[] }
  >;
  readonly brokers: ReadonlyMap<number, Broker>;
}

/**
 * What a server says of topics. A partition without a leader, after which the client throws, does not concern the others.
 *
 * @throws what the client throws when there is no answer, or one topic is unknown or may not be described
 */
export async function described(
  client: Producer,
  options: { readonly topics: string[]; readonly retries?: number; readonly forceUpdate?: boolean },
): Promise<DescribedTopics> {
  try {
    return await client.metadata(options);
  } catch (error) {
    const response = descriptionIn(error);
    if (response === undefined || response.topics.some(({ errorCode }) => errorCode !== 0)) throw error;
    return describedBy(response);
  }
}

/** The answer of a server about topics in an error of the client, which its declarations leave out. */
function descriptionIn(error: unknown): metadataV12.MetadataResponse | undefined {
  const { response } = error as { readonly response?: metadataV12.MetadataResponse };
  if (error instanceof ResponseError && response?.topics !== undefined) return response;
  if (error instanceof AggregateError) return error.errors.map(descriptionIn).findLast(Boolean);
  return error instanceof Error && error.cause !== undefined ? descriptionIn(error.cause) : undefined;
}

function describedBy({ topics, brokers }: metadataV12.MetadataResponse): DescribedTopics {
  const known = topics.map(({ name, partitions }) => {
    const leaders = new Map(partitions.map(({ partitionIndex, leaderId }) => [partitionIndex, leaderId]));
    const numbered = partitions.map((_partition, index) => ({ leader: leaders.get(index) ?? -1 }));
    return [name ?? '', { partitionsCount: partitions.length, partitions: numbered }] as const;
  });
  return { topics: new Map(known), brokers: new Map(brokers.map((each) => [each.nodeId, each])) };
}
