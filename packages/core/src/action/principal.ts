/** Who asks for an action: written with every event of it. */
export interface Principal {
  /** Names the user or the system, such as the subject of a token. At most 255 characters. */
  readonly name: string;
}
